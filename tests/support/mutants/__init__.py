"""Tests the tests: changes one small thing in the server, and looks whether a test notices.

    make mutants SEED=7 COUNT=200

draws mutants of six kinds by chance, puts one after the other into a copy of the checkout, and runs the tests that
carry out the changed line, the nearest ones first, until one fails. `kinds` says what a mutant is, `sample` draws them,
`covering` knows which test carries out which line, and `trial` runs tests against one mutant. cosmic-ray makes the
changes and keeps the results, so a run that was interrupted goes on where it was.

Everything that is written is below `build/mutants/`; the checkout itself is never changed.
"""
