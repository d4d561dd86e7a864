"""Names, ranges and other values that every part may use, and that use no part."""
