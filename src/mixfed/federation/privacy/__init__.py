"""What an owner lets leave a site, and what is withheld: for whoever audits what a federation tells of clients."""
