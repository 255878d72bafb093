"""The demo's page: one HTML file with its plots inside, which fetches nothing. `whole.write` writes it.

markup.py    elements whose text is escaped
scale.py     numbers to places on a plot, and round numbers between
plot.py      a frame with axes, and the marks in it
plots.py     the plots of the demo
tables.py    tables that a phone shows as cards
section.py   what sections are made of
opening.py   what came out, in a few numbers; and the way of a report
sections.py  the report, what each party sees, what it cost, attacks
of_model.py  the model's training, and how good it is
whole.py     all of it
style.css    colours, by day and by night; and what changes on a phone
"""
