"""JSON Schemas of tools: checked themselves, and the arguments of calls against them, at a bounded cost.

Schemas come from strangers and arguments from models. Every check counts its steps (`steps.py`); those that take long
run on a thread of their own (`checks.py`), one at a time.
"""
