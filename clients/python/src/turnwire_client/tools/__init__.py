"""Functions as tools of the client: `schemas` describes and converts arguments, `functions` makes a tool of a function,
`running` runs the calls that a watch shows.
"""
