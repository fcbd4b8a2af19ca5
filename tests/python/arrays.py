# SPDX-License-Identifier: Apache-2.0
"""Arrays on the host that other libraries take by DLPack, for tests without numpy."""

import ctypes

import tutti


class Array:
    """A stand-in for another library's array: `from_dlpack` of this module makes it."""

    def __init__(self, values, dtype="float32"):
        self.tensor = values if isinstance(values, tutti.Tensor) else tutti.tensor(values, dtype=dtype)

    def __dlpack__(self, **arguments):
        return self.tensor.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def tolist(self):
        return self.tensor.tolist()


def from_dlpack(array):
    """What results in the kind of `Array` are made by."""
    return Array(tutti.from_dlpack(array))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Versioned))
_Export = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.POINTER(_Versioned)))
_Stream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class _Table(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("export_object", _Export),
        ("import_object", ctypes.c_void_p),
        ("describe", ctypes.c_void_p),
        ("current_stream", _Stream),
    )


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_used = b"used_dltensor_versioned"
_table_name = b"dlpack_exchange_api"


@_Deleter
def _delete(managed):
    TabledArray.deleted += 1
    _deleters.pop(ctypes.addressof(managed.contents))(managed)


_deleters = {}


@_Export
def _export(array, out):
    capsule = array.tensor.__dlpack__(max_version=(1, 0))
    managed = ctypes.cast(_pointer(capsule, b"dltensor_versioned"), ctypes.POINTER(_Versioned))
    _rename(capsule, _used)
    _deleters[ctypes.addressof(managed.contents)] = _Deleter(managed.contents.deleter)
    managed.contents.deleter = ctypes.cast(_delete, ctypes.c_void_p)
    managed.contents.flags = int(array.is_read_only)
    out[0] = managed
    TabledArray.exported += 1
    return 0


def table(major=1, older=None):
    """An exchange table of DLPack, as the capsule that a type has."""
    made = _Table(major=major, minor=3, older=older, export_object=_export, current_stream=_Stream(lambda *_: 0))
    _tables.append(made)
    return _capsule(ctypes.addressof(made), _table_name, None)


_tables = []


class TabledArray(Array):
    """An array whose type has an exchange table, and so is taken without `__dlpack__`."""

    __dlpack_c_exchange_api__ = table()
    exported = 0
    deleted = 0

    def __init__(self, values, is_read_only=False):
        super().__init__(values)
        self.is_read_only = is_read_only

    def __dlpack__(self, **arguments):
        raise AssertionError("is not needed")
