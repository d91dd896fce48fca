"""Keys that a program meets, written to a file, and their launches made again without it.

`key_file` is the file. `recorder` describes launches while the program runs, and counts those
that a file does not list. `launches` imports a recorded kernel and makes its arguments.
"""
