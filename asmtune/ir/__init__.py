"""Text to data: `asm` reads PTX, SASS and cubins, `ttir` reads Triton's first IR. Pure, without IO."""
