"""AI-Bench8: eight kernels tuned by asmtune against untuned ones, and what each part is worth."""
