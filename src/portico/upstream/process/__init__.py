"""Child processes: started, guarded, listened to and ended."""
