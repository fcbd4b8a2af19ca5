# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F403, F405
# Where repositories are of Spack before 1.0, write `from spack.package import *` alone.
from spack.package import *
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage


class Tutti(CMakePackage, CudaPackage):
    """Collective communication between the devices of one process or of many, on GPUs and on virtual devices."""

    # A placeholder, which leads nowhere: whoever publishes tutti, or this recipe, writes the address of its repository here.
    git = "https://example.org/tutti.git"

    license("Apache-2.0")

    version("main", branch="main")

    variant("shared", default=True, description="Build a shared library")
    variant("mpi", default=True, description="Build tutti::mpi, and tutti-perf for mpirun")
    variant("nccl", default=True, when="+cuda", description="Build the NCCL transport")
    variant("nccl_api", default=True, when="~shared", description="Build libtutti_nccl.so, which has NCCL's interface")
    variant("nvtx", default=True, when="+cuda", description="Tell profilers of collectives through NVTX")
    variant("cuda_libraries", default=True, when="+cuda", description="Build tutti::cuda_libraries")
    variant("perf", default=True, description="Build tutti-perf")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("fmt", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("dlpack", type="build")
    depends_on("libsodium@1.0.18:")
    depends_on("mpi@3:", when="+mpi")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl@2.18:", when="+nccl")
    depends_on("cli11", type="build", when="+perf")
    depends_on("benchmark", when="+perf")

    generator("ninja")

    conflicts("%gcc@:11")
    conflicts("%clang@:14")

    def cmake_args(self):
        spec = self.spec
        # Each option is ON or OFF, never AUTO: a package depends on nothing but what its spec names.
        parts = ("cuda", "nccl", "nccl_api", "nvtx", "mpi", "cuda_libraries")
        arguments = [
            self.define(f"TUTTI_{part.upper()}", "ON" if spec.satisfies(f"+{part}") else "OFF") for part in parts
        ]
        arguments += [
            self.define("TUTTI_BUILD_TESTS", False),
            self.define("TUTTI_BUILD_EXAMPLES", False),
            self.define_from_variant("TUTTI_BUILD_PERF", "perf"),
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
        ]
        architectures = spec.variants["cuda_arch"].value if spec.satisfies("+cuda") else ("none",)
        if "none" not in architectures:
            arguments.append(self.define("CMAKE_CUDA_ARCHITECTURES", list(architectures)))
        return arguments
