"""Numbers read off a compiled config; `FEATURES` is the one list of them.

artifact --ProfileReader--> Profile --launch_features(work)--> Features
           in the worker              here, a launch
"""

from asmtune.features.profile import Profile
from asmtune.features.reader import ProfileReader, launch_features
from asmtune.features.registry import FEATURES, Feature, schema

__all__ = ["FEATURES", "Feature", "Profile", "ProfileReader", "launch_features", "schema"]
