"""Search: better schedules than the heuristic's, found by trying.

Next     beam.py (the search), starts.py and moves.py (what is tried), decisions.py (a schedule to edit), helper.py
         (where it is tried), results.py (what was found, as text), ../../frontend/search/ (who times it on a device)
"""
