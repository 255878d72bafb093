"""What the services share on the web: problem documents, bounded bodies and answers, the parameter client."""
