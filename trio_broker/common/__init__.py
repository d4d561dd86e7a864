"""Values and small functions for all parts, which know none of them: names, ranges, addresses, times, histograms."""
