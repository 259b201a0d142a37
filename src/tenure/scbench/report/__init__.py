"""What a grid of the benchmark says: means with intervals, claims, tables, plots and a page. No PyTorch is needed."""

from tenure.scbench.report.writing import Report, report, write

__all__ = ["Report", "report", "write"]
