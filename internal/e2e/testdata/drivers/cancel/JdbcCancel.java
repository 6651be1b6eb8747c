import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;

/** Cancels of the JDBC driver. Prints what came of each. */
public class JdbcCancel {
    static final String RUNS = "DO $$BEGIN PERFORM pg_sleep(60); END$$";

    static String execute(Statement st) {
        try {
            st.execute(RUNS);
            return "had no effect";
        } catch (SQLException e) {
            return e.getSQLState();
        }
    }

    static void then(Connection c) throws SQLException {
        try (Statement st = c.createStatement(); ResultSet rs = st.executeQuery("SELECT 'answered'")) {
            rs.next();
            System.out.println("then " + rs.getString(1));
        }
    }

    /** Cancels again and again until it has had its effect: one that comes before the statement has none, anywhere. */
    static String cancelled(Statement st) throws Exception {
        CompletableFuture<String> end = CompletableFuture.supplyAsync(() -> execute(st));
        while (!end.isDone()) {
            Thread.sleep(300);
            st.cancel();
        }
        return end.get();
    }

    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        p.setProperty("user", System.getenv("PGUSER"));
        p.setProperty("password", System.getenv("PGPASSWORD"));
        p.setProperty("prepareThreshold", "0");
        p.setProperty("protocolVersion", args[0]);
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE");
        try (Connection c = DriverManager.getConnection(url, p)) {
            try (Statement st = c.createStatement()) {
                System.out.println("cancel " + cancelled(st));
                then(c);
            }
            try (Statement st = c.createStatement()) {
                st.setQueryTimeout(1);
                System.out.println("setQueryTimeout " + execute(st));
                then(c);
            }
            c.setAutoCommit(false);
            try (Statement st = c.createStatement()) {
                st.execute("SELECT 1");
                System.out.println("in a transaction " + cancelled(st));
            }
            c.rollback();
            then(c);
            c.rollback();
        }
    }
}
