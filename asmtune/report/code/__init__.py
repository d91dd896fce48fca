"""Code that people read: lines with class, source and weight, for terminals and pages.

views         from parsed PTX or SASS to lines; `CodeReader` does so for a config's artifact
origins       which loop of the PTX a loop of the SASS comes from, so that both have weights
model         the lines and the view that the others fill
"""
