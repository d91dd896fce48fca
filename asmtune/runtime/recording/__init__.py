"""Keys that a program meets, written to a file, and their launches made again without it.

`key_file` is the file. `recorder` describes launches while the program runs. `launches` imports a
recorded kernel and makes its arguments.
"""
