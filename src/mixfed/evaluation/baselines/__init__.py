"""Published rivals, over the same pool and in the same units: for whoever asks why not simply one of them."""
