"""AI-Bench8: eight kernels tuned by asmtune against untuned ones, and the worth of each part."""
