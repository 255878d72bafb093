"""The steps of the demo, a module each with `run`, in order: reporting, measuring, training, party views.

people.py makes up whom it follows, results.py holds what the steps return.
"""
