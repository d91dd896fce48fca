"""Records for people and for programs: text, JSON, CSV, pages and progress.

Rows import downwards: a module here takes a record that the rooms below have made and writes it in
a form; it decides nothing. `explain` is the exception: it judges a config. The columns of a report
are named once, in `tables`, for terminal and page.

cells         tables that fit every width, columns over rows of JSON, and values as text
tables        prune reports as tables
documents     prune reports as JSON and CSV
tuning        results of `asmtune tune`, and its progress
progress      a progress bar on stderr
code          PTX, SASS and AMDGCN line by line
explain       one config: verdict, what limits it, what to try, its hot loop
page          prune reports as one HTML page, of what is in static/
"""
