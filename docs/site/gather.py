# SPDX-License-Identifier: Apache-2.0
"""Gathers what the site is made of in one folder: the documents as they lie, a page for each header, the examples.

usage: gather.py SOURCE FOLDER
"""

import os
import re
import shutil
import sys
from pathlib import Path

from header_filter import lead_of

DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "packaging/README.md",
    "transport/team/README.md",
)
# Behind these stand all other pages of their folders.
FOLDERS_OF_PAGES = ("docs/tutorials/README.md", "docs/results/README.md")
LINK = re.compile(r"(?<!\!)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")
LANGUAGES = {
    ".cpp": "cpp",
    ".hpp": "cpp",
    ".cu": "cuda",
    ".cuh": "cuda",
    ".cmake": "cmake",
    ".py": "python",
    "": "bash",
}

# Pages of the reference, in the order of what one needs first.
HEADERS = (
    ("collectives", "Collectives of one process"),
    ("reduce_op", "Operations of reductions"),
    ("reduce_types", "Element types of reductions"),
    ("persistent", "Persistent collectives"),
    ("communicator", "Communicator: between processes"),
    ("communicator_options", "Options of a communicator"),
    ("patience", "Patience with late ranks"),
    ("data_parallel", "Replicas and gradient buckets"),
    ("sharded_optimizer", "Sharded optimiser"),
    ("exchange", "Exchange and network"),
    ("mpi", "MPI"),
    ("collective", "Names of collectives"),
    ("tensor", "Tensors"),
    ("layout", "Layouts"),
    ("dtype", "Element types"),
    ("float_types", "Narrow float types"),
    ("device", "Devices"),
    ("stream", "Streams"),
    ("event", "Events"),
    ("graph", "Graphs"),
    ("cuda_graph", "Graphs, as torch.cuda has them"),
    ("graphed_callables", "Graphed callables"),
    ("capture_error_mode", "Capture error modes"),
    ("memory", "Memory"),
    ("pluggable_allocator", "Allocators of one's own"),
    ("sharing", "Sharing between processes"),
    ("rng", "Random numbers"),
    ("topology", "Topology"),
    ("virtual_devices", "Virtual devices"),
    ("dlpack", "DLPack"),
    ("cuda_interop", "CUDA interoperation"),
    ("cuda_libraries", "cuBLAS handles and cuFFT plans"),
    ("telemetry", "Telemetry of GPUs"),
    ("sync_debug", "Calls that wait, announced"),
    ("stream_sanitizer", "Stream sanitizer"),
    ("nvtx", "Ranges and marks of NVTX"),
    ("jiterator", "Operations given as source text"),
    ("error", "Errors"),
    ("list_of", "Lists as arguments"),
)
WITHOUT_PAGE = {"tutti", "export"}
# What stands on another header's page, behind its own.
PARTS = {"communicator": ("communicator_collectives",)}


def relink(text, document, source, folder):
    """Links to what is no document lead to the reference, to the examples, or to a copy of the file."""

    def link(found):
        words, target, anchor = found[1], found[2], found[3] or ""
        if re.match(r"[a-z]+:", target):
            return found[0]
        path = os.path.normpath(os.path.join(os.path.dirname(document), target))
        here = os.path.dirname(document) or "."
        if path == "docs/README.md":
            return f"[{words}]({os.path.relpath('index.md', here)}{anchor})"
        if path.endswith(".md"):
            return found[0]
        if path == "include/tutti":
            return f"[{words}]({os.path.relpath('reference/index.md', here)})"
        if path == "examples" or path.startswith("examples/"):
            page = "index" if path == "examples" else path.split("/")[1].split(".")[0]
            return f"[{words}]({os.path.relpath(f'examples/{page}.md', here)})"
        if (source / path).is_dir():
            documents = sorted((source / path).glob("README.md"))
            if documents:
                return f"[{words}]({os.path.relpath(f'{path}/README.md', here)})"
            return words
        copy = folder / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, copy)
        return f"{{download}}`{words} <{os.path.relpath(path, here)}>`{anchor}"

    return LINK.sub(link, text)


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def gather_documents(source, folder):
    documents = list(DOCUMENTS)
    documents += [str(page.relative_to(source)) for page in sorted((source / "docs").rglob("*.md"))]
    for document in documents:
        if document.startswith("docs/site/") or document == "docs/README.md":  # which is the start page's table
            continue
        text = relink((source / document).read_text(), document, source, folder)
        # What names a listing's file is for the tests.
        text = re.sub(r"^```c\+\+.*$", "```cpp", text, flags=re.MULTILINE)
        if document in FOLDERS_OF_PAGES:
            pages = sorted(page.stem for page in (source / document).parent.glob("*.md") if page.name != "README.md")
            text += "\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"
        write(folder / document, text)
    shutil.copytree(source / "docs/images", folder / "docs/images", dirs_exist_ok=True)
    table = [line for line in (source / "docs/README.md").read_text().splitlines() if line.startswith("|")]
    table = LINK.sub(
        lambda found: f"[{found[1]}]({os.path.normpath(os.path.join('docs', found[2]))})", "\n".join(table)
    )
    index = (source / "docs/site/index.md.in").read_text().replace("PAGES", table)
    # A page that has no place of its own yet stands among those for who carries on.
    named = set(re.findall(r"^(?:.* <)?(docs/[\w-]+)>?$", index, re.MULTILINE))
    pages = [f"docs/{page.stem}" for page in sorted((source / "docs").glob("*.md")) if page.name != "README.md"]
    others = "".join(f"{page}\n" for page in pages if page not in named)
    write(folder / "index.md", index.replace("docs/architecture\n", f"docs/architecture\n{others}"))


def gather_reference(source, folder):
    there = {header.stem for header in (source / "include/tutti").glob("*.hpp")} - WITHOUT_PAGE
    there -= {part for parts in PARTS.values() for part in parts}
    pages = [page for page in HEADERS if page[0] in there]
    # What has no title yet is called by its name, behind the others.
    pages += [(name, name.replace("_", " ").capitalize()) for name in sorted(there - {name for name, _ in HEADERS})]
    index = (
        "# Reference\n\nAll of it is in namespace `tutti`; `tutti/tutti.hpp` has what needs neither MPI nor CUDA.\n\n"
    )
    index += "| header | |\n|---|---|\n"
    for name, title in pages:
        lead = lead_of((source / f"include/tutti/{name}.hpp").read_text())
        text = f'# {title}\n\n`#include "tutti/{name}.hpp"`\n\n{lead}\n\n'
        text += "".join(f"```{{doxygenfile}} {part}.hpp\n```\n\n" for part in (name, *PARTS.get(name, ())))
        write(folder / f"reference/{name}.md", text)
        index += f"| [`tutti/{name}.hpp`]({name}.md) | {title} |\n"
    index += "\n```{toctree}\n:hidden:\n\n" + "\n".join(name for name, _ in pages) + "\n```\n"
    write(folder / "reference/index.md", index)


def listing(file, name):
    return f"## {name}\n\n````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text().rstrip()}\n````\n\n"


def gather_examples(source, folder):
    pages = []
    for entry in sorted((source / "examples").iterdir()):
        if entry.name == "CMakeLists.txt":
            continue
        name = entry.name.split(".")[0]
        files = sorted(entry.iterdir(), key=lambda file: (file.stem != name, file.name)) if entry.is_dir() else [entry]
        write(folder / f"examples/{name}.md", f"# {name}\n\n" + "".join(listing(file, file.name) for file in files))
        pages.append(name)
    text = "# Examples\n\nWhole programs; the [tutorials](../docs/tutorials/README.md) go through them.\n\n"
    text += "".join(f"- [{name}]({name}.md)\n" for name in pages)
    write(folder / "examples/index.md", text + "\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n")


def main():
    source, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    gather_documents(source, folder)
    gather_reference(source, folder)
    gather_examples(source, folder)


main()
