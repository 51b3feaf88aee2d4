"""A session full of traffic, watched through a network that breaks all the time: does a client hold what is stored?

`proxy` is the network, `traffic` what happens in the session, `harness` puts both around a client's program, and
`programs` says how each program is started and what it must do. Everything is drawn from a seed; the moments are not.
"""
