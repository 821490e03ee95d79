"""What several searches share: the arms of a comparison, or the setting of a series.

A search file says `from studies.fixing import Fixing`: the modules beside a search file can be
imported while it is loaded.
"""
