"""Programs over the library: replay, regression, roofline, collecting rows and training."""
