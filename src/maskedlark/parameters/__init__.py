"""The parameter document: settings, chain, policy, drafting. Run by every party."""
