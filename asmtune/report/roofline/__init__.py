"""Rooflines: a `Chart` of `studies/roofline` as table, JSON and picture.

document      table and JSON, and the names that the picture shares with them
figure        the picture, SVG or PNG; matplotlib is imported when one is drawn
label_places  free places for the picture's labels
"""
