"""`graphmem eval claims`: accuracy and confidence of the local judge on contradictions."""
