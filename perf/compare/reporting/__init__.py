# SPDX-License-Identifier: Apache-2.0
"""What perf/compare/report.py is made of: reading results, tables of them, pages."""
