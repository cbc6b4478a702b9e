"""What all benchmarks share: data sets, commands, other systems, results and sections of pages."""
