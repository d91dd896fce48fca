"""Numbers read off a compiled config; `FEATURES` is the one list of them.

artifact --ProfileReader--> Profile --launch_features(work)--> Features
           in the worker              here, a launch
"""
