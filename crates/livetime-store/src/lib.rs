//! Run files: MCAP writer, reader, index, recovery; histograms and run summary.
