"""`graphmem eval claims`: what the local judge knows of contradictions, and how sure it may be."""
