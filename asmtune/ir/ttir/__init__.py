"""What a launch asks for, read from the compiler's first IR (TTIR): pure text in, data out."""
