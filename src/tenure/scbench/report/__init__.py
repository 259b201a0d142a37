"""What a grid of the benchmark says: means with intervals, claims, tables, plots and a page. No PyTorch is needed."""
