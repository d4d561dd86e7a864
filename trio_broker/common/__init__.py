"""Values and small functions for all parts, which know none of them: names, ranges, addresses, times, histograms, and
how text, amounts and records are written."""
