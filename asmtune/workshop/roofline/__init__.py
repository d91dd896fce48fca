"""Kernels on a machine's roofline, before tuning and after.

subjects      kernels, shapes and their stored configs, to launches
survey        from a launch to its two points: which config is tuned, and where times come from
chart         a machine's roofs, and points under them
document      the chart as table and JSON
figure_style  colours, type and files of all figures, on a light card and a dark one
figure        the chart as a picture

The form is that of Williams, Waterman and Patterson (2009). A record's time counts only for the
size it was taken at.
"""
