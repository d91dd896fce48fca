"""Records for people and for programs: text, JSON, CSV, pages, figures and progress.

Rows import downwards: a module here takes a record that the rooms below have made and writes it in
a form; it decides nothing. `explain/` is the exception: it asks for the second config to compare
with, and judges both.

cells         tables that fit every width, and values as text
tables        prune reports and replays as tables
documents     prune reports as JSON and CSV, and read back
runs          tuning runs from their traces
tuning        results of `asmtune tune`, and its progress
regression    checks of bench and accuracy runs: table, Markdown, JSON, figure
accuracy      accuracy runs: table, JSON, page, figure
progress      a progress bar on stderr
code/         PTX and SASS line by line
explain/      one config: verdict, comparison, code
explorer/     prune reports as one HTML page
figures       colours, type and files of all figures, on a light card and a dark one
roofline/     rooflines as table, JSON and picture
"""
