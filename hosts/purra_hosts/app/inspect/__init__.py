"""A local web page of the journal: what ran, how, and what it cost."""
