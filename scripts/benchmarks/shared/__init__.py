"""What all benchmarks share: data sets, commands, other systems, files of results and sections of pages."""
