"""What perf/report.py is made of: reading results, tables of them, pages."""
