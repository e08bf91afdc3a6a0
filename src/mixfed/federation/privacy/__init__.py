"""What an owner lets leave a site: read this room to audit what a federation tells of clients."""
