drop index reservations_late;
