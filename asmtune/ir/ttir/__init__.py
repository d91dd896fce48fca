"""Read Triton's first IR (TTIR), or a Gluon kernel's TTGIR, and count the work of a launch.

    text --parser--> Module --tree--> Tree --plan--> EvaluationPlan --evaluate--> ExecutionCounts
                                                                        analysis --> Work

The scalar part of a kernel is evaluated on the real arguments, for a sample of program ids, which
gives the trips of every loop; `tiles` evaluates what is loaded from index tensors whose elements
are known. `costs` and `memory` count operations; `strides` says how tiles lie in memory, and how
far an access reaches; `loops` describes loops, assumes trips for those that cannot be evaluated,
and finds state that lives across steps. `addresses` reads pointers as sums of strides, `slots`
finds what each program writes of its own, and whether that is a part of a sum. Text in, data out:
nothing here imports the compiler.
"""
