"""What runs inside a job, from its start to its tail, and how it ends or goes back to the queue."""
