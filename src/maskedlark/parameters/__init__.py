"""The declared settings: document, chain, policy, drafting."""
