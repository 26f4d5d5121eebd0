"""What abreast costs: ratios against the plain operation, measured in pairs in one run. `python -m benchmarks`."""
