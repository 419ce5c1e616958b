"""Evaluations: a preset and every baseline on a labelled data set, in one run (`bench/quality`).

One module a data set, with a function `judge(Request) -> Judged`; `request.JUDGES` lists them.
"""
