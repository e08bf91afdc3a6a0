"""Published rivals, over the same pool and in the same units, for honest comparisons."""
