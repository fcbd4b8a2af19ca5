# SPDX-License-Identifier: Apache-2.0
"""What Doxygen sees of a header: without the comment in front of its namespace, which heads its page.

usage: header_filter.py FILE
"""

import re
import sys
from pathlib import Path

# The last block of /// lines that a namespace follows, with an empty line between them or none.
LEAD = re.compile(r"((?:^///.*\n)+)\n?(?=namespace tutti\b)", re.MULTILINE)
HASH = re.compile(r"^template <>\nstruct std::hash<(?:(?!};).*\n)*};\n", re.MULTILINE)

# What is private, up to the next access specifier or the end of the class. Doxygen's XML has it whatever one asks for.
PRIVATE = re.compile(r"^( *) private:\n(?:(?!\1(?: public| protected|\};)).*\n)*", re.MULTILINE)

# Sphinx cannot read them.
LAMBDA = re.compile(r" = \[\] \{[^}]*\}\(\);")


def lead_of(text):
    """The comment as Markdown; empty if the header has none."""
    found = LEAD.search(text)
    return re.sub(r"^/// ?", "", found[1], flags=re.MULTILINE).strip() if found else ""


def without_lead(text):
    """Also without what is private, specialisations of the standard library's templates, of which Doxygen knows no scope,
    and initialisers that are lambdas."""
    text = PRIVATE.sub(lambda found: "\n" * found[0].count("\n"), text)
    text = LAMBDA.sub(lambda found: ";" + "\n" * found[0].count("\n"), text)
    text = HASH.sub(lambda found: "\n" * found[0].count("\n"), text)
    text = LEAD.sub(lambda found: "\n" * found[0].count("\n"), text)
    # Sphinx takes long over a namespace that is on every page.
    text = re.sub(r"^(namespace tutti \{|\}  // namespace tutti)$", "", text, flags=re.MULTILINE)
    return re.sub(r"^namespace tutti::", "namespace ", text, flags=re.MULTILINE)


if __name__ == "__main__":
    sys.stdout.write(without_lead(Path(sys.argv[1]).read_text()))
