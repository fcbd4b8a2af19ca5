# SPDX-License-Identifier: Apache-2.0
"""Files that scripts write at paths which a user has named, by the library's rule for them: see src/files/place.hpp."""

import contextlib
import errno
import os
import stat

ACCESS_CONTROL_LIST = "system.posix_acl_access"


class Place:
    """A path that is to be written to, as it was found; `target` is the file that it leads to by links."""

    def __init__(self, path):
        self.path = self.target = os.fspath(path)
        self.status = None
        self.is_stream = False
        try:
            is_link = stat.S_ISLNK(os.lstat(self.path).st_mode)
        except OSError as error:
            self.may_be_replaced = error.errno == errno.ENOENT  # by the first file of the name
            return
        self.may_be_replaced = False
        try:
            self.status = os.stat(self.path)
            if is_link:
                self.target = os.path.realpath(self.path)
            is_named = os.path.samestat(os.lstat(self.target), self.status)
        except OSError:
            return
        self.is_stream = not stat.S_ISREG(self.status.st_mode) or standard_stream(self.status) is not None
        is_plain = is_named and not self.is_stream and self.status.st_nlink == 1
        self.may_be_replaced = is_plain and os.access(self.path, os.W_OK) and not has_access_control_list(self.target)

    def open_where_it_is(self):
        """The number of an open file; one that was there keeps what is in it. Waits for a pipe's reader."""
        stream = standard_stream(self.status) if self.status else None
        if stream is not None:
            return os.dup(stream)
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOCTTY, 0o666)


class PartFile:
    """A new file beside a place, which it takes when it is whole; else it is gone at the end of the context."""

    def __init__(self, place):
        """Raises OSError if there can be none."""
        self.place = place
        for number in range(1, 1001):
            self.path = f"{place.target}.{os.getpid()}{'' if number == 1 else f'-{number}'}.part"
            try:
                # Until it has the older file's permissions, nobody else may read it.
                permissions = 0o600 if place.status else 0o666
                self.file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOCTTY, permissions)
                return
            except FileExistsError:
                continue
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.file)
        if self.path:
            os.unlink(self.path)

    def take_place(self):
        """Puts the file in its place, and returns whether that was possible."""
        try:
            if self.place.status:
                resemble(self.file, self.place.status)
            os.rename(self.path, self.place.target)
        except OSError:
            return False
        self.path = None
        return True


class WholeFile:
    """A file that is written as a whole, once."""

    def __init__(self, path):
        """Finds out that something can be written there: raises OSError if not."""
        self.path = path
        self.where_it_is = None
        place = Place(path)
        if place.may_be_replaced:
            try:
                part = PartFile(place)
            except OSError:
                part = None  # the folder takes no new file
            if part:
                with part:
                    write_all(part.file, b"\n")
                return
        self.where_it_is = place.open_where_it_is()

    def write(self, content):
        """Writes text or bytes. Raises OSError; then a file that was there stays, unless it is written where it is."""
        content = content.encode() if isinstance(content, str) else content
        if self.where_it_is is None:
            place = Place(self.path)
            with PartFile(place) as part:
                write_all(part.file, content)
                sync(part.file)
                if place.may_be_replaced and part.take_place():
                    return
            self.where_it_is = place.open_where_it_is()
        status = os.fstat(self.where_it_is)
        if stat.S_ISREG(status.st_mode) and standard_stream(status) is None:
            os.ftruncate(self.where_it_is, 0)
        write_all(self.where_it_is, content)
        os.close(self.where_it_is)
        self.where_it_is = None


def standard_stream(status):
    """The standard output or standard error that is this file, or None."""
    for stream in (1, 2):
        try:
            if os.path.samestat(os.fstat(stream), status):
                return stream
        except OSError:
            continue
    return None


def has_access_control_list(path):
    try:
        return len(os.getxattr(path, ACCESS_CONTROL_LIST)) > 0
    except OSError:
        return False


def resemble(file, before):
    """Whoever could read and write the file before can do so again, and nobody else."""
    now = os.fstat(file)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        os.fchown(file, before.st_uid, before.st_gid)
    with contextlib.suppress(OSError):
        os.removexattr(file, ACCESS_CONTROL_LIST)  # the folder's, if it has one
    os.fchmod(file, before.st_mode & 0o777)


def sync(file):
    """As some file systems cannot do it, that is no failure."""
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def write_all(file, content):
    while content:
        content = content[os.write(file, content) :]
